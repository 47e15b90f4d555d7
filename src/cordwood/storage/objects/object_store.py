"""Objects below a URL: what an archive needs of object storage, and no more.

There is no rename, and no append: an object is put as a whole, once, and read by ranges. `put_new`
is the only decision between writers: of two that put an object of one name, one wins.

A request whose answer was lost may have been carried out, or may be later: a late `put_new` finds
the object there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import BaseError, GenericError
from obstore.store import LocalStore, from_url

from cordwood.model.errors import ConfigError, CordwoodError

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Store

#: The parts that a large object is sent in. S3 takes 10,000 of them.
PART_BYTES: Final = 16 << 20

#: How often a new object is put at most, while the store gives no answer, or has not decided since
#: another request of the same object is under way (S3: 409 ConditionalRequestConflict); and how
#: often it is read, where the connection breaks in the middle of the content.
_TRIES_MAX: Final = 10

_CLOUD: Final = "169.254.169.254"
_NO_CREDENTIALS: Final = (
    "No credentials are set, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment"
)

T = TypeVar("T")

_SCHEMES: Final = ("s3", "gs", "az", "abfs", "abfss", "file")


class ObjectStoreError(CordwoodError):
    """A request that object storage refused, or did not answer; names the URL of the object."""


class ObjectMissingError(ObjectStoreError):
    """There is no such object."""


@dataclass(frozen=True, slots=True, order=True)
class ObjectFacts:
    """An object: its key below the store's URL, its size, when it was put (ms)."""

    key: str
    size_bytes: int
    modified_ms: int


@dataclass(slots=True)
class Usage:
    """Counts of requests by kind (`get`, `head`, `put`, `list`, `delete`), and of bytes.

    A request that obstore sends again counts once.
    """

    requests: dict[str, int] = field(default_factory=dict)
    bytes_read: int = 0
    bytes_written: int = 0

    def count(self, kind: str, *, read: int = 0, written: int = 0) -> None:
        """Adds a request."""
        self.requests[kind] = self.requests.get(kind, 0) + 1
        self.bytes_read += read
        self.bytes_written += written


class ObjectStore:
    """The objects below a URL. It may be pickled, and used by threads."""

    def __init__(self, url: str, options: Mapping[str, str] | None = None) -> None:
        """Takes a URL (`s3://BUCKET/PREFIX`, `gs://`, `az://`, `file:///DIRECTORY`); asks nothing.

        Args:
            url: where the objects are.
            options: of obstore's store of that kind, as `endpoint` or `region`, which count more
                than the variables of the environment (`AWS_ENDPOINT_URL`, ...).

        Raises:
            ConfigError: the URL has another scheme, or no bucket.
        """
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES:
            raise ConfigError(
                f"{url}: not a URL of object storage; one begins with "
                f"{', '.join(f'{each}://' for each in _SCHEMES)}"
            )
        if parts.scheme != "file" and not parts.netloc:
            raise ConfigError(f"{url}: it names no bucket")
        self.url = url.rstrip("/")
        self.usage = Usage()
        self._options = dict(options or {})
        self._opened: Store | None = None

    def __getstate__(self) -> tuple[str, dict[str, str]]:
        return self.url, self._options

    def __setstate__(self, state: tuple[str, dict[str, str]]) -> None:
        self.__init__(*state)  # type: ignore[misc]  # a store is its arguments

    @property
    def _store(self) -> Store:
        if self._opened is None:
            self._opened = _opened(self.url, self._options)
        return self._opened

    def url_of(self, key: str) -> str:
        """The URL of an object."""
        return f"{self.url}/{key}"

    # ---- reading

    def list(self, prefix: str = "") -> Iterator[ObjectFacts]:
        """The objects whose keys begin with a prefix, which ends at a `/`; in no order.

        Raises:
            ObjectStoreError: the store refuses, or does not answer.
        """
        with self._errors(prefix):
            yield from _read_again(lambda: list(self._listed(prefix)))

    def _listed(self, prefix: str) -> Iterator[ObjectFacts]:
        # A page has up to a thousand objects.
        for page in obstore.list(self._store, prefix or None):
            self.usage.count("list")
            for each in page:
                modified_ms = int(each["last_modified"].timestamp() * 1000)
                yield ObjectFacts(each["path"], each["size"], modified_ms)

    def size(self, key: str) -> int:
        """The bytes of an object. Raises as `get`."""
        with self._errors(key):
            found = obstore.head(self._store, key)
        self.usage.count("head")
        return found["size"]

    def get(self, key: str) -> bytes:
        """The content of an object.

        Raises:
            ObjectMissingError: it is not there.
            ObjectStoreError: the store refuses, or does not answer.
        """
        with self._errors(key):
            data = _read_again(lambda: bytes(obstore.get(self._store, key).bytes()))
        self.usage.count("get", read=len(data))
        return data

    def get_range(self, key: str, start: int, size_bytes: int) -> bytes:
        """Bytes of an object, from byte `start` on; fewer where it ends. Raises as `get`."""
        if size_bytes <= 0:
            return b""
        with self._errors(key):
            data = _read_again(
                lambda: bytes(obstore.get_range(self._store, key, start=start, length=size_bytes))
            )
        self.usage.count("get", read=len(data))
        return data

    # ---- writing

    def put(self, key: str, content: bytes | Iterable[bytes]) -> None:
        """Puts an object, in parts if it is large; one of that key is replaced.

        Raises:
            ObjectStoreError: the store refuses, or does not answer; the object may be there.
        """
        sent = 0

        def counted(chunks: Iterable[bytes]) -> Iterator[bytes]:
            nonlocal sent
            for chunk in chunks:
                sent += len(chunk)
                yield chunk

        with self._errors(key):
            if isinstance(content, bytes):
                sent = len(content)
                obstore.put(self._store, key, content, use_multipart=False)
            else:
                obstore.put(self._store, key, counted(content), chunk_size=PART_BYTES)
        self.usage.count("put", written=sent)

    def put_new(self, key: str, content: bytes) -> bool:
        """Puts an object unless there is one of that key; whether it is the one that is there.

        Where the store refuses, the object that is there is read: obstore sends a request again
        whose answer was lost, and the second is refused because of the first.

        Args:
            key: of the object.
            content: unlike that of any other writer.

        Raises:
            ObjectStoreError: the store gave no answer; the object may be there, or be put later.
        """

        self.usage.count("put", written=len(content))
        last: Exception | None = None
        for _ in range(_TRIES_MAX):
            try:
                with self._errors(key):
                    obstore.put(self._store, key, content, mode="create", use_multipart=False)
            except ObjectStoreError as error:
                last = error
                if not isinstance(error.__cause__, BaseError):
                    raise
            else:
                return True
            try:
                return self.get(key) == content
            except ObjectMissingError:
                continue
        assert last is not None, "each try ended in an error"
        raise last

    def delete(self, keys: Sequence[str]) -> None:
        """Deletes objects; one that is not there counts as deleted.

        Raises:
            ObjectStoreError: the store refuses, or does not answer; some may be gone.
        """
        for key in keys:
            with self._errors(key):
                try:
                    obstore.delete(self._store, key)
                except FileNotFoundError:
                    continue
                finally:
                    self.usage.count("delete")

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:

        try:
            yield
        except FileNotFoundError as error:
            raise ObjectMissingError(f"{self.url_of(key)}: there is no such object") from error
        except (BaseError, OSError) as error:
            raise ObjectStoreError(f"{self.url_of(key)}: {_reason(error)}") from error


def _opened(url: str, options: Mapping[str, str]) -> Store:
    parts = urlsplit(url)
    if parts.scheme == "file":
        directory = Path(unquote(parts.path))
        return LocalStore(directory, automatic_cleanup=True, mkdir=True)
    config: Any = dict(options)
    client: Any = {"allow_http": True} if config.get("endpoint", "").startswith("http://") else {}
    try:
        return from_url(
            url,
            config=config or None,
            client_options=client or None,
            retry_config={"max_retries": 10, "retry_timeout": timedelta(seconds=180)},
        )
    except BaseError as error:
        raise ConfigError(f"{url}: {_reason(error)}") from error


def _read_again(read: Callable[[], T]) -> T:
    """The result of a read, tried again where it broke off: obstore does not in all cases."""
    for _ in range(_TRIES_MAX - 1):
        try:
            return read()
        except GenericError as error:
            if "body error" not in str(error):
                raise
    return read()


def _reason(error: BaseException) -> str:
    """The first line of an error of obstore, which is followed by how it came about."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = lines[0] if lines else type(error).__name__
    # Without credentials it asks the machine's cloud for some.
    return f"{reason}. {_NO_CREDENTIALS}" if _CLOUD in reason else reason
