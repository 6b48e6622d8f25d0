"""What can fail with the Hub, each failure as one line that says what to do next.

huggingface_hub is imported inside the functions, as in `repository`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from huggingface_hub.errors import HfHubHTTPError


def out_of_reach(error: BaseException) -> bool:
    """Whether an error of the client says that the Hub cannot be asked, and not what it answers."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    if isinstance(error, HfHubHTTPError):
        return False
    return isinstance(error, (OfflineModeIsEnabled, transport_error()))


def transport_error() -> type[Exception]:
    """The base of what the HTTP client raises: httpx's or, since huggingface_hub 2, httpx2's."""
    from huggingface_hub.errors import HfHubHTTPError

    base: type[Exception] = HfHubHTTPError.__bases__[0]
    return base


def explain(error: BaseException, repository: str, revision: str | None) -> str:
    """What went wrong with the Hub, in one line that says what to do next."""
    from huggingface_hub import constants, errors

    hub = constants.ENDPOINT
    if isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ is not None:
        return explain(error.__cause__, repository, revision)
    if isinstance(error, errors.OfflineModeIsEnabled):
        return (
            f"no complete copy of {repository} is cached, and HF_HUB_OFFLINE forbids the network; "
            "unset it, or use `-m austen`, which needs none"
        )
    if isinstance(error, errors.GatedRepoError):
        return (
            f"{repository} is open to some users only; ask for access at {hub}/{repository}, then "
            "`hf auth login` or set HF_TOKEN"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{repository} has no branch, tag or commit {revision}; see {hub}/{repository}"
    if isinstance(error, errors.HfHubHTTPError):
        return _explain_answer(error, repository)
    if isinstance(error, UserWarning):
        return f"{in_line(error)} Make room there, or set HF_HOME to another folder"
    if isinstance(error, OSError) and error.errno is not None:
        return (
            f"the Hub's cache in {constants.HF_HUB_CACHE} cannot be used: {in_line(error)}; "
            "correct that, or set HF_HOME to another folder"
        )
    return (
        f"cannot fetch {repository} from {hub} ({in_line(error)}), and no complete copy is cached; "
        "try again with a network, or use `-m austen`, which needs none"
    )


def _explain_answer(error: HfHubHTTPError, repository: str) -> str:
    """What a refusal means. 401 is the Hub's answer for what is private and what is not there."""
    from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError

    status, message = error.response.status_code, " ".join((error.server_message or "").split())
    if "Invalid credentials" in message:
        return "the Hub refuses the access token; `hf auth login` again, or correct HF_TOKEN"
    unknown = status in (401, 404) and not isinstance(error, EntryNotFoundError)
    if unknown or isinstance(error, RepositoryNotFoundError):
        return (
            f"neither a file nor a repository has the name {repository}; check it, or, for a "
            "private repository, `hf auth login` or set HF_TOKEN"
        )
    answer = f"HTTP {status}" + (f", {message}" if message else "")
    return f"the Hub answers {answer} for {repository}; try again later"


def in_line(error: BaseException) -> str:
    """An error's own words in one line, or its name where it has none."""
    return " ".join(str(error).split()) or type(error).__name__
