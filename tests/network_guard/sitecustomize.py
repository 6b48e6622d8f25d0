"""Lets this interpreter reach this machine alone.

The tests run it in their own process, and put its folder on PYTHONPATH, so that every Python
process they start runs it too.
"""

import ipaddress
import sys


class NetworkForbiddenError(RuntimeError):
    """Something reached for the network. No OSError, which the program would answer politely."""


def _is_here(host: object) -> bool:
    if isinstance(host, bytes):
        host = host.decode()
    if host in (None, "", "localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _watch(event: str, args: tuple[object, ...]) -> None:
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = args[1]  # a tuple of host and port, the path of a Unix socket, or None
        host = address[0] if isinstance(address, tuple) else None
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        host = args[0]
    else:
        return
    if not _is_here(host):
        raise NetworkForbiddenError(f"a test reached for {host}")


sys.addaudithook(_watch)
