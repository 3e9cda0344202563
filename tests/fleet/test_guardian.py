"""Programs of others do not outlive whoever wanted them, and end as if they were our own."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from steelyard.contract.errors import SettingsError
from steelyard.fleet.guardian import guarded_command
from steelyard.fleet.process import LocalLauncher, LocalProcess

SLEEP = "import time; time.sleep(60)"


async def launched(code: str, folder: Path, **variables: str) -> LocalProcess:
    command = guarded_command(
        [sys.executable, "-c", code], variables, folder=str(folder), grace_s=0.5
    )
    return await LocalLauncher("guarded", command).launch()


async def child_of(process: LocalProcess) -> psutil.Process:
    end_s = time.monotonic() + 10
    while not (children := psutil.Process(process.pid).children()):
        assert time.monotonic() < end_s
        await asyncio.sleep(0.01)
    return children[0]


async def test_its_output_is_logged_and_its_variables_are_set(tmp_path: Path) -> None:
    code = "import os; print(os.environ['GREETING'], os.getcwd())"
    process = await launched(code, tmp_path, GREETING="hello")
    ended = await process.wait()
    assert ended.code == 0
    assert process.tail == [f"hello {tmp_path}"]


@pytest.mark.parametrize(("status", "seen"), [(3, 3), (78, 1), (66, 1)])
async def test_its_status_is_passed_on_unless_it_would_be_misread(
    tmp_path: Path, status: int, seen: int
) -> None:
    process = await launched(f"raise SystemExit({status})", tmp_path)
    ended = await process.wait()
    assert (ended.code, ended.is_final) == (seen, False)


async def test_a_program_that_is_not_there_is_a_matter_of_settings(tmp_path: Path) -> None:
    command = guarded_command(["/nowhere/python"], {}, folder=str(tmp_path), grace_s=1)
    process = await LocalLauncher("guarded", command).launch()
    ended = await process.wait()
    assert isinstance(ended.error, SettingsError)
    assert "/nowhere/python" in str(ended.error)
    assert ended.is_final


async def test_a_socket_that_was_left_behind_does_not_keep_it_from_starting(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "left.sock")
    bind = f"import os, socket; socket.socket(socket.AF_UNIX).bind({path!r})"
    command = guarded_command(
        [sys.executable, "-c", f"{bind}; os.kill(os.getpid(), 9)"],
        {},
        folder=str(tmp_path),
        grace_s=1,
        socket=path,
    )
    for _ in range(2):
        process = await LocalLauncher("guarded", command).launch()
        assert (await process.wait()).code == -signal.SIGKILL, process.tail


async def test_sigterm_is_passed_on(tmp_path: Path) -> None:
    process = await launched(SLEEP, tmp_path)
    await child_of(process)
    process.terminate()
    assert (await process.wait()).code == -signal.SIGTERM


async def test_its_violent_death_is_noticed(tmp_path: Path) -> None:
    process = await launched(SLEEP, tmp_path)
    (await child_of(process)).kill()
    assert (await process.wait()).code == -signal.SIGKILL


async def test_killing_the_guardian_takes_the_program_along(tmp_path: Path) -> None:
    process = await launched(SLEEP, tmp_path)
    child = await child_of(process)
    process.kill()
    await process.wait()
    await_gone(child.pid)


def test_a_program_does_not_outlive_whoever_wanted_it(tmp_path: Path) -> None:
    wanting = (
        "import asyncio, os, sys\n"
        "from steelyard.fleet.guardian import guarded_command\n"
        "from steelyard.fleet.process import LocalLauncher\n"
        f"code = 'import os, time; print(os.getpid(), flush=True); {SLEEP}'\n"
        "async def main():\n"
        "    command = guarded_command([sys.executable, '-c', code], {}, folder='/', grace_s=0.2)\n"
        "    process = await LocalLauncher('guarded', command).launch()\n"
        "    while not process.tail: await asyncio.sleep(0.01)\n"
        "    print(process.tail[0], flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", wanting], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    await_gone(pid)


def await_gone(pid: int) -> None:
    """Wait until it has died, whether or not anybody has noticed."""
    end_s = time.monotonic() + 10
    with contextlib.suppress(psutil.NoSuchProcess):
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < end_s
            time.sleep(0.02)
