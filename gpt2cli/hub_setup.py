"""The environment of the Hub's client, checked before the client makes use of it.

What the client cannot use it says in words of its own, some at its import and some at the first
request; here it is one line that names the variable. What they mean:
https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
"""

from __future__ import annotations

import importlib
import os
import re
import warnings
from pathlib import Path
from urllib.parse import urlsplit

from .errors import GPT2Error
from .hub_errors import in_line, transport_error

# Variables that the client reads when it is imported, unless the user set them. Xet transfers in
# threads of its own, where over HTTP a lost connection is taken up again and Ctrl-C ends the run
# at once; and telemetry is a request more, for a list of other programs' names.
DEFAULTS = ("HF_HUB_DISABLE_XET", "HF_HUB_DISABLE_TELEMETRY")

_ENDPOINT = "HF_ENDPOINT"
_SECONDS = ("HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT")


def cache_folder() -> Path:
    """Where the client's cache lies, or would. After this the client can be imported.

    Raises GPT2Error for a variable that the client cannot read, and for a user without a home.
    """
    for name in DEFAULTS:
        os.environ.setdefault(name, "1")
    url = os.environ.get(_ENDPOINT)
    if url is not None and not _is_address(url):
        raise GPT2Error(
            f"the environment variable {_ENDPOINT} is {url!r}, which is no http or https address; "
            "correct or unset it"
        )
    for name in _SECONDS:
        if not re.fullmatch(r"[0-9]{1,9}", seconds := os.environ.get(name, "0")):
            raise GPT2Error(
                f"the environment variable {name} is {seconds!r}, which is no whole number of "
                "seconds; correct or unset it"
            )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of variables that it no longer heeds
        from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE)
    if folder.parts[:1] == ("~",):
        raise GPT2Error(
            "there is no home folder to keep the Hub's cache in; set HF_HOME to a folder, or use "
            "`-m austen`, which needs none"
        )
    return folder


def check_network() -> None:
    """Have the client make what its requests go through, from proxies and certificates.

    Raises GPT2Error for variables that it cannot do so from.
    """
    from huggingface_hub import get_session

    http = importlib.import_module(transport_error().__module__.partition(".")[0])
    try:
        get_session()
    except (http.InvalidURL, ValueError, ImportError, OSError) as error:
        raise GPT2Error(
            f"no request can be made with the network's environment variables ({in_line(error)}); "
            "correct those of HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY, SSL_CERT_FILE and "
            "SSL_CERT_DIR that are set"
        ) from error


def _is_address(url: str) -> bool:
    """Whether requests can be sent to what `url` begins."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        _ = parts.port  # which raises for one that is no port
    except ValueError:
        return False
    plain = url.isprintable() and " " not in url and not (parts.query or parts.fragment)
    return plain and parts.scheme in ("http", "https") and bool(host)
