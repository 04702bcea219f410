"""A very small server with SGLang's command line and the pages that supervising needs, for tests of processes. Standard library
only, starts in a tenth of a second, misbehaves on demand. Flags of its own begin with --play-."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--config")
    parser.add_argument("--play-load-s", type=float, default=0.0)
    parser.add_argument("--play-say", default="")  # printed first
    parser.add_argument("--play-exit", type=int)  # ends with this code instead of listening
    parser.add_argument("--play-kill-self", action="store_true")  # SIGKILL instead of listening
    parser.add_argument("--play-ignore-sigterm", action="store_true")
    parser.add_argument("--play-no-ready-page", action="store_true")  # an older server
    parser.add_argument("--play-busy-file")  # while it exists, /ready and /health answer 503
    parser.add_argument("--play-hang-info", action="store_true")  # /server_info never answers, /v1/loads is not there
    parser.add_argument("--play-hang-file")  # while it exists, no page answers
    parser.add_argument("--play-children", type=int, default=0)  # that stay in the session
    parser.add_argument("--play-orphan", action="store_true")  # a child whose parent ends at once
    parser.add_argument("--play-runaway", action="store_true")  # a child in a session of its own
    parser.add_argument("--play-child-holds-port", action="store_true")
    parser.add_argument("--play-record-aborts")
    parser.add_argument("--play-dump-environ")
    known, _ = parser.parse_known_args()
    return known


def main() -> None:
    options = parse()
    if options.play_say:
        print(options.play_say, file=sys.stderr, flush=True)
    if options.play_dump_environ:
        Path(options.play_dump_environ).write_text(json.dumps(dict(os.environ)))
    if options.play_ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    children = [subprocess.Popen(sleeper) for _ in range(options.play_children)]
    if options.play_orphan:
        subprocess.run([sys.executable, "-c", f"import subprocess; subprocess.Popen({sleeper!r})"], check=True)
    if options.play_runaway:
        children.append(subprocess.Popen(sleeper, start_new_session=True))
    time.sleep(options.play_load_s)
    if options.play_kill_self:
        os.kill(os.getpid(), signal.SIGKILL)
    if options.play_exit is not None:
        os._exit(options.play_exit)
    key = json.loads(Path(options.config).read_text().rpartition("api-key: ")[2]) if options.config else None

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wait_while_hung()
            page = self.path.partition("?")[0]
            busy = options.play_busy_file and Path(options.play_busy_file).exists()
            if (page == "/ready" and not options.play_no_ready_page) or page == "/health":
                self.answer(503 if busy else 200, {})
            elif key is not None and self.headers.get("Authorization") != f"Bearer {key}":
                self.answer(401, {"error": "Unauthorized"})
            elif page == "/v1/models":
                self.answer(200, {"data": [{"id": "stand-in"}]})
            elif page == "/server_info":
                if options.play_hang_info:
                    time.sleep(600)
                self.answer(200, {"version": "0.5.23"})
            else:
                self.answer(404, {})

        def do_POST(self) -> None:
            self.wait_while_hung()
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if key is not None and self.headers.get("Authorization") != f"Bearer {key}":
                self.answer(401, {})
                return
            if options.play_record_aborts:
                with open(options.play_record_aborts, "ab") as file:
                    file.write(body + b"\n")
            self.answer(200, {})

        def wait_while_hung(self) -> None:
            while options.play_hang_file and Path(options.play_hang_file).exists():
                time.sleep(0.02)

        def answer(self, status: int, body: object) -> None:
            raw = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *args: object) -> None:
            return

    ThreadingHTTPServer.allow_reuse_address = True
    try:
        server = ThreadingHTTPServer((options.host, options.port), Handler)
    except OSError as error:
        print(f"ERROR:    [Errno {error.errno}] error while attempting to bind: address already in use", flush=True)
        os._exit(3)
    server.daemon_threads = True
    if options.play_child_holds_port:
        os.set_inheritable(server.fileno(), True)
        subprocess.Popen(sleeper, close_fds=False)
    if not options.play_ignore_sigterm:
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    print("The server is fired up and ready to roll!", flush=True)
    server.serve_forever()
    for child in children:
        child.kill()
        child.wait()


if __name__ == "__main__":
    main()
