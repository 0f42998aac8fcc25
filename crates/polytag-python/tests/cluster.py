"""A standalone cluster of Spark on this machine: one master and any number of workers, real processes on loopback."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


def missing() -> str | None:
    """What a cluster needs that is not here."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return "pyspark is not installed"
    java = shutil.which("java") or shutil.which("java", path=os.path.join(os.environ.get("JAVA_HOME", "/nowhere"), "bin"))
    if java is None:
        return "there is no Java"
    told = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    version = told.split('"')[1].split(".")[0] if '"' in told else "0"
    return None if version.isdigit() and int(version) >= 17 else f"Java 17 or later is needed, and this is {version}"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def descendants(pid: int) -> list[int]:
    """The processes that a process began, and those that they began."""
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    return [grandchild for child in map(int, children) for grandchild in (child, *descendants(child))]


class Cluster:
    """A master; workers are added one by one."""

    def __init__(self, folder: Path) -> None:
        import pyspark

        self.folder, self.home = folder, Path(pyspark.__file__).parent
        self.workers: list[subprocess.Popen[bytes]] = []
        self.port, self.page = free_port(), free_port()
        self.master = self._start(MASTER, "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self.page))
        self.url = f"spark://127.0.0.1:{self.port}"
        self._wait_for(0)

    def add_workers(self, *cpus: int | None) -> None:
        """More workers with a core each; with a number, it and all it begins may use that core of the machine alone."""
        for cpu in cpus:
            self._add_worker(cpu)
        self._wait_for(sum(worker.poll() is None for worker in self.workers))

    def _add_worker(self, cpu: int | None) -> None:
        work = self.folder / f"work-{len(self.workers)}"
        pinned = [] if cpu is None else ["taskset", "-c", str(cpu)]
        options = ["--cores", "1", "--memory", "1g", "--host", "127.0.0.1", "--webui-port", "0", "--work-dir", str(work)]
        self.workers.append(self._start(WORKER, *options, self.url, pinned=pinned))

    def kill(self, worker: subprocess.Popen[bytes]) -> list[int]:
        """Ends a worker and its executors at once, as a machine that fails would."""
        executors = descendants(worker.pid)
        for pid in (worker.pid, *executors):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        worker.wait()
        return executors

    def session(self, **settings: str):
        """A session whose work is done by the workers."""
        from pyspark.sql import SparkSession

        os.environ.update(self._environment())
        builder = SparkSession.builder.master(self.url).appName("polytag")
        defaults = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.executor.memory": "700m",
            "spark.executor.cores": "1",
            "spark.sql.shuffle.partitions": "4",
            "spark.log.level": "ERROR",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
        }
        for name, value in (defaults | settings).items():
            builder = builder.config(name, value)
        return builder.getOrCreate()

    def close(self) -> None:
        for process in (*self.workers, self.master):
            if process.poll() is None:
                self.kill(process)

    def _environment(self) -> dict[str, str]:
        return {
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_DAEMON_MEMORY": "512m",
        }

    def _start(self, kind: str, *arguments: str, pinned: list[str] | None = None) -> subprocess.Popen[bytes]:
        program = str(self.home / "bin" / "spark-class")
        log = (self.folder / f"{kind.rsplit('.', 1)[1]}-{len(self.workers)}.log").open("wb")
        with log:
            return subprocess.Popen(
                [*(pinned or []), program, kind, *arguments],
                env=os.environ | self._environment(), stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def _wait_for(self, workers: int) -> None:
        """Waits until the master says that so many workers are alive."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.page}/json/", timeout=5) as answer:
                    text = answer.read().decode()
                if f'"aliveworkers" : {workers}' in text or (workers == 0 and '"status" : "ALIVE"' in text):
                    return
            except OSError:
                pass
            if self.master.poll() is not None:
                break
            time.sleep(0.2)
        logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in self.folder.glob("*.log"))
        raise RuntimeError(f"the cluster does not come up:\n{logs}")
