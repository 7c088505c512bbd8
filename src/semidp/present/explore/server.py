"""Listening on 127.0.0.1 until an interrupt, and opening the browser without showing the token to
other users.
"""

import contextlib
import html
import secrets
import signal
import socket
import tempfile
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path

from semidp.errors import InputError
from semidp.present.explore.plan_forecasts import PlanForecasts


def serve(
    desk: PlanForecasts, port: int, *, browser: bool, announce: Callable[[str], None]
) -> None:
    """Serve the page until an interrupt; `announce` is given its address once it can be opened."""
    import uvicorn

    from semidp.present.explore.explorer_page import application

    # Other users of the machine reach 127.0.0.1, too: only the token keeps them out.
    token = secrets.token_urlsafe(24)
    # Bound before it is announced, so that nobody else can take the port in between.
    with _listening(port) as listener:
        bound_port = listener.getsockname()[1]
        settings = uvicorn.Config(
            application(desk, token, bound_port),
            log_level="critical",  # what an exception says may quote data
            access_log=False,  # addresses hold the token
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        server = uvicorn.Server(settings)
        where = f"http://127.0.0.1:{bound_port}/{token}/"
        announce(where)
        with (
            _open_browser(where) if browser else contextlib.nullcontext(),
            contextlib.suppress(KeyboardInterrupt),
        ):
            if hasattr(signal, "SIGHUP"):  # the server itself knows the other signals only
                signal.signal(signal.SIGHUP, server.handle_exit)
            server.run(sockets=[listener])


@contextlib.contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen(32)
        except OSError:
            raise InputError(
                f"port {port} of 127.0.0.1 is taken: choose another one, or 0 for any"
            ) from None
        yield listener


@contextlib.contextmanager
def _open_browser(where: str) -> Iterator[None]:
    """Open the browser on a page of this user's that leads there: other users see the words of a
    command.
    """
    with tempfile.TemporaryDirectory(prefix="semidp-explore-") as folder:
        lead = Path(folder) / "open.html"
        target = html.escape(where, quote=True)
        lead.write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0;url={target}"><a'
            f' href="{target}">semidp</a>'
        )
        # The folder is this user's alone, and so is the file with the token in it.
        lead.chmod(0o600)
        webbrowser.open(lead.as_uri())
        yield
