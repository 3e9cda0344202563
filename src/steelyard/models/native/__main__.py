"""`python -m steelyard.models.native`: compile the kernels now rather than at the first start.

Exit status 0 also where they cannot be compiled: Steelyard then runs on plain PyTorch, slowly.
"""

import logging

from steelyard.models.native.build import KernelsUnavailable, load_kernels
from steelyard.settings import resolve

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("steelyard.models.native")

try:
    load_kernels(resolve().cache_dir)
except KernelsUnavailable as error:
    log.warning("warning: Steelyard will be slow here: %s", error)
else:
    log.info("the CPU kernels are ready")
