"""Puts objects whose digests are taken as they are read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final

from cordwood.storage.objects.object_store import ObjectStore

#: What is read of a file at a time.
CHUNK_BYTES: Final = 1 << 20


def put_digested(store: ObjectStore, key: str, chunks: Iterable[bytes], size_bytes: int) -> str:
    """Puts an object of `size_bytes`; the SHA-256 of its content, in hexadecimal.

    A small one is one request, which needs no parts.

    Raises:
        ObjectStoreError: the store refuses, or does not answer; the object may be there.
    """
    digest = hashlib.sha256()

    def read() -> Iterator[bytes]:
        for chunk in chunks:
            digest.update(chunk)
            yield chunk

    store.put(key, b"".join(read()) if size_bytes <= CHUNK_BYTES else read())
    return digest.hexdigest()
