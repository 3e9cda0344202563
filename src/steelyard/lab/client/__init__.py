"""The load generator: sends a plan's requests on time and stamps what comes back.

`crew` runs it in processes of its own and collects the records, `probe` finds out what a server
understands. It measures; `stats` counts and `audit` judges.
"""

from steelyard.lab.client.crew import Crew, CrewReport
from steelyard.lab.client.driver import Limits, Share
from steelyard.lab.client.job import Job, Progress
from steelyard.lab.client.observation import Instruments, Observation, Observed
from steelyard.lab.client.pulse import ClientHealth
from steelyard.lab.client.target import Api, Extras, Target

__all__ = [
    "Api",
    "ClientHealth",
    "Crew",
    "CrewReport",
    "Extras",
    "Instruments",
    "Job",
    "Limits",
    "Observation",
    "Observed",
    "Progress",
    "Share",
    "Target",
]
