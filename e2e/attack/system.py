"""A running `mco up` under attack: starts it, sends requests as several identities, and measures it meanwhile."""

import base64
import contextlib
import http.client
import json
import multiprocessing
import os
import re
import resource
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.parse

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MCO = os.path.abspath(os.environ.get("MCO") or os.path.join(ROOT, "target", "release", "mco"))

# The usual limit of open files in a shell. This process needs more for its own connections, mco must not inherit them.
USUAL_DESCRIPTORS = 1024
START_SECONDS = 90
REQUEST_SECONDS = 60


class Broken(Exception):
    """The attack succeeded; the text is what happened."""


class NotPlayed(Exception):
    """The attack cannot be played here; the text is why."""


def require(condition, what):
    if not condition:
        raise Broken(what)


def run(*arguments, timeout=60, **options):
    """Runs the program and returns its completed process, with its output as text."""
    return subprocess.run([MCO, *arguments], capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
                          check=False, **options)


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self):
        return self.body.decode(errors="replace")

    def json(self):
        return json.loads(self.body or b"null")

    def __repr__(self):
        return f"{self.status} {self.text[:200]}"


def usual_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (USUAL_DESCRIPTORS, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class System:
    """An `mco up` without local nodes, in an own directory."""

    def __init__(self, directory=None, options=()):
        self.scratch = tempfile.mkdtemp(prefix="mco-attack-")
        self.data = directory or os.path.join(self.scratch, "data")
        self.port, self.server_port, self.console_port = free_port(), free_port(), free_port()
        self.options = list(options)
        self.process = None
        self.installed = False
        # The peak of the processes that were stopped since the last measurement.
        self.stopped_peak = 0.0
        self.start()

    def start(self, *more):
        self.output = os.path.join(self.scratch, "output")
        # Away from the repository, so that nothing is written there.
        with open(self.output, "w", encoding="utf-8") as output:
            self.process = subprocess.Popen(
                [MCO, "up", "--nodes", "none", "--data-dir", self.data, "--port", str(self.port), "--server-port",
                 str(self.server_port), "--console-port", str(self.console_port), *self.options, *more],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=self.scratch,
                preexec_fn=usual_descriptors)
        deadline = time.monotonic() + START_SECONDS
        while not self.is_started():
            if not self.alive() or time.monotonic() > deadline:
                raise Broken(f"mco up does not start: {self.printed()[-300:]}")
            time.sleep(0.1)
        self.installed = True

    def is_started(self):
        if "Ctrl-C stops it" in self.printed():
            return True
        if "control plane" not in self.printed() or not self.installed:
            return False
        # After a restart it waits a minute for the nodes, which do not exist, before it prints the rest.
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.console_port), timeout=1).close()
            return self.request("GET", "/readyz", token="").status == 200
        return False

    def printed(self):
        with open(self.output, encoding="utf-8") as output:
            return output.read()

    def log(self):
        """Returns all logs in the data directory."""
        texts = []
        for name in sorted(os.listdir(self.data)):
            if ".log" in name:
                with open(os.path.join(self.data, name), encoding="utf-8", errors="replace") as log:
                    texts.append(log.read())
        return "".join(texts)

    def alive(self):
        return self.process.poll() is None

    def restart(self, *more):
        self.stop()
        self.start(*more)

    def stop(self):
        if self.process and self.alive():
            self.stopped_peak = max(self.stopped_peak, peak_mb(self.process.pid))
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def close(self):
        self.stop()
        shutil.rmtree(self.scratch, ignore_errors=True)

    # Requests

    def kubeconfig(self):
        return os.path.join(self.data, "kubeconfig")

    def credentials(self, path=None):
        """Returns the certificate authority, client certificate and key of a kubeconfig, as PEM."""
        with open(path or self.kubeconfig(), encoding="utf-8") as file:
            text = file.read()
        found = [re.search(rf"{name}: (\S+)", text).group(1)
                 for name in ("certificate-authority-data", "client-certificate-data", "client-key-data")]
        return [base64.b64decode(one).decode() for one in found]

    def context(self, certificate=None):
        """Returns a TLS context that trusts the server, with a client certificate and its key if there are any."""
        context = ssl.create_default_context(cadata=self.credentials()[0])
        context.check_hostname = False
        if certificate:
            with tempfile.NamedTemporaryFile("w") as pem:
                pem.write("".join(certificate))
                pem.flush()
                context.load_cert_chain(pem.name)
        return context

    def connection(self, token=None, timeout=REQUEST_SECONDS, certificate=None):
        """Returns a connection: of the administrator, unless there is a token."""
        if token is None and certificate is None:
            certificate = self.credentials()[1:]
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout,
                                           context=self.context(certificate if token is None else None))

    def request(self, method, path, body=None, token=None, headers=None, timeout=REQUEST_SECONDS, certificate=None,
                kind="application/json"):
        """Sends one request; `token=""` is anonymous."""
        connection = self.connection(token, timeout, certificate)
        sent = {"Content-Type": kind, **(headers or {})}
        if token:
            sent["Authorization"] = f"Bearer {token}"
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        with contextlib.closing(connection):
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            return Response(response.status, dict(response.getheaders()), response.read())

    def patch(self, path, body, token=None, kind="merge"):
        types = {"json": "application/json-patch+json", "merge": "application/merge-patch+json",
                 "strategic": "application/strategic-merge-patch+json"}
        return self.request("PATCH", path, body, token, kind=types[kind])

    def create(self, path, body):
        response = self.request("POST", path, body)
        if response.status not in (200, 201):
            raise RuntimeError(f"preparing: POST {path}: {response}")
        return response.json()

    def mco(self, *arguments, **options):
        environment = {**os.environ, "KUBECONFIG": self.kubeconfig()}
        return run(*arguments, env=environment, cwd=self.scratch, **options)

    # Identities

    def join_token(self, *options):
        """Returns a join token without the fingerprint of the server, and what was printed with it."""
        for _ in range(50):
            printed = run("up", "--join-token", "--data-dir", self.data, *options)
            found = re.search(r"([\w-]+\.[\w-]+)\.[\w-]{43}\b", printed.stdout + printed.stderr)
            if printed.returncode == 0 and found:
                return found.group(1), printed
            time.sleep(0.2)
        raise RuntimeError(f"no join token: {printed.stdout}{printed.stderr}")

    def join(self, name, token=None, credential=None):
        """Joins as a node; returns the response and the node's credential."""
        token = token or self.join_token()[0]
        credential = credential or base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=")
        return self.request("POST", "/join", {"node": name, "credential": credential}, token), credential

    def node(self, name):
        """Returns the token of a new node."""
        response, credential = self.join(name)
        if response.status != 200:
            raise RuntimeError(f"preparing: {name} cannot join: {response}")
        return credential

    def user(self, name):
        """Returns a client certificate and key of a user without rights, signed with the server's own key."""
        authority = os.path.join(self.data, "pki")
        key, request, certificate = (os.path.join(self.scratch, f"{name}.{end}") for end in ("key", "csr", "crt"))
        openssl = ["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                   "-keyout", key, "-out", request, "-subj", f"/CN={name}"]
        sign = ["openssl", "x509", "-req", "-in", request, "-CA", f"{authority}/ca.crt", "-CAkey",
                f"{authority}/ca.key", "-days", "1", "-set_serial", str(secrets.randbits(64)), "-out", certificate,
                "-extfile", f"{key}.extensions"]
        with open(f"{key}.extensions", "w", encoding="ascii") as file:
            file.write("basicConstraints=CA:FALSE\nextendedKeyUsage=clientAuth\n")
        try:
            for command in (openssl, sign):
                subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise NotPlayed(f"needs openssl: {error}") from error
        return [open(file, encoding="utf-8").read() for file in (certificate, key)]

    def ignition_token(self, pool="worker"):
        """Returns a token for the Ignition server."""
        server = os.path.join(self.data, "server")
        printed = run("pointer", "--pool", pool, "--server", f"127.0.0.1:{self.server_port}", "--ca",
                      f"{server}/ca.crt", "--token", "--tokens", f"{server}/tokens.json")
        return re.search(r"Bearer ([\w-]+)", printed.stdout).group(1)

    def ignition(self, path="/config/worker", token=None, accept="application/vnd.coreos.ignition+json; version=3.5.0"):
        """Sends a request to the Ignition server."""
        context = ssl._create_unverified_context()  # pylint: disable=protected-access
        connection = http.client.HTTPSConnection("127.0.0.1", self.server_port, timeout=REQUEST_SECONDS,
                                                 context=context)
        headers = {"Accept": accept, **({"Authorization": f"Bearer {token}"} if token else {})}
        with contextlib.closing(connection):
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return Response(response.status, dict(response.getheaders()), response.read())

    def console(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.console_port, timeout=REQUEST_SECONDS)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return Response(response.status, dict(response.getheaders()), response.read())

    def console_url(self):
        with open(os.path.join(self.data, "console"), encoding="utf-8") as file:
            return urllib.parse.urlsplit(file.read().strip())

    def half_sent(self, count, path, token=""):
        """Opens connections whose requests announce a body that never arrives."""
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n"
        head += f"Authorization: Bearer {token}\r\n" if token else ""
        return open_connections(count, self.port, self.context(), (head + "\r\n").encode())


def open_connections(count, port, context=None, data=b""):
    """Opens connections, sends the same data on each, and returns those that the server accepted."""
    opened, lock = [], threading.Lock()

    def open_some(share):
        for _ in range(share):
            try:
                connection = socket.create_connection(("127.0.0.1", port), timeout=5)
                if context:
                    connection = context.wrap_socket(connection)
                if data:
                    connection.sendall(data)
            except OSError:
                continue
            with lock:
                opened.append(connection)

    threads = [threading.Thread(target=open_some, args=(count // 8,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return opened


def close_all(connections):
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.close()


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        require(time.monotonic() < deadline, what)
        time.sleep(0.1)


class Probe:
    """Measures the worst latency of /readyz from an own process, so that the attack's own work does not count."""

    INTERVAL = 0.05

    def __init__(self, port):
        self.worst = multiprocessing.Value("d", 0.0)
        self.since = multiprocessing.Value("d", 0.0)
        self.process = multiprocessing.Process(target=self._measure, args=(port,), daemon=True)
        self.process.start()

    def _measure(self, port):
        context = ssl._create_unverified_context()  # pylint: disable=protected-access
        while True:
            begin = time.monotonic()
            self.since.value = begin
            try:
                connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
                connection.request("GET", "/readyz")
                connection.getresponse().read()
                connection.close()
            except OSError:
                pass  # A process that is gone is noticed elsewhere.
            self.worst.value = max(self.worst.value, time.monotonic() - begin)
            self.since.value = 0.0
            time.sleep(self.INTERVAL)

    def stop(self):
        """Returns the worst latency, that of a request under way included."""
        pending = time.monotonic() - self.since.value if self.since.value else 0.0
        self.process.terminate()
        self.process.join()
        return max(self.worst.value, pending)


def reset_peak(pid):
    """Makes the kernel measure the peak of the resident memory anew."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def peak_mb(pid):
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            return int(re.search(r"VmHWM:\s+(\d+)", file.read()).group(1)) / 1024
    except (OSError, AttributeError):
        return 0.0
