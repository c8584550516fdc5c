"""A real S3-compatible server on this machine, for tests: SeaweedFS out of a wheel."""

from __future__ import annotations

import os
import secrets
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from libs.embedded import ports

PORTS = (
    *("s3.port", "s3.port.grpc", "master.port", "master.port.grpc", "volume.port", "volume.port.grpc"),
    *("filer.port", "filer.port.grpc", "admin.port", "admin.port.grpc", "s3.port.iceberg", "s3.port.lance"),
)
START_S = 60.0


@dataclass(frozen=True)
class S3Server:
    """Where it is, and the file with who may use it."""

    endpoint: str
    credentials_file: Path

    def client(self) -> Any:
        """botocore's, as an application has it."""
        from botocore.config import Config
        from botocore.session import Session

        session = Session(profile="default")
        session.set_config_variable("credentials_file", str(self.credentials_file))
        config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1})
        return session.create_client("s3", endpoint_url=self.endpoint, region_name="us-east-1", config=config)


@contextmanager
def running(folder: Path) -> Iterator[S3Server]:
    """A server with its data in `folder`, killed at the end."""
    data = folder / "data"
    data.mkdir(parents=True)
    key, secret = secrets.token_hex(8), secrets.token_hex(16)
    credentials = folder / "credentials"
    credentials.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")
    taken = {name: ports.free_port() for name in PORTS}
    command = [
        *(str(Path(sysconfig.get_path("scripts")) / "weed"), "mini", f"-dir={data}", "-ip=127.0.0.1"),
        *("-ip.bind=127.0.0.1", "-master.telemetry=false", "-admin.ui=false", "-webdav=false"),
        *(f"-{name}={port}" for name, port in taken.items()),
    ]
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
    with open(folder / "log", "wb") as log:
        child = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    server = S3Server(f"http://127.0.0.1:{taken['s3.port']}", credentials)
    try:
        _wait(server, child)
        yield server
    finally:
        child.kill()
        child.wait()


def _wait(server: S3Server, child: subprocess.Popen[bytes]) -> None:
    """Until it takes an object: it answers before it can."""
    client, deadline = server.client(), time.monotonic() + START_S
    while True:
        try:
            client.create_bucket(Bucket="first")
            client.put_object(Bucket="first", Key="first", Body=b"1")
        except Exception:
            assert child.poll() is None, "the S3 server ended"
            assert time.monotonic() < deadline, "the S3 server did not start"
            time.sleep(0.1)
        else:
            return
