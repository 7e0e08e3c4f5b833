"""Topic names and identity: which names are taken, and the id, slug, RRL and UUID that a new topic gets."""

import re
import secrets
from typing import NamedTuple
from uuid import UUID, uuid4

from ulid import ULID

from nodes.broker.errors import Code, RefusedError

# Kafka makes folders of names; we do not, but clients and tools rely on the same rules.
MAX_NAME = 249
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_NOT_IN_SLUG = re.compile(r"[^a-z0-9]+")
_SLUG_SUFFIX = 6  # characters of the ULID's random part


class Identity(NamedTuple):
    """The four names of a topic beside its Kafka name."""

    topic_id: UUID
    ulid: str
    slug: str
    rrl: str


def check_name(name: str) -> None:
    """Raises for a name that Kafka does not take either."""
    if not name:
        raise RefusedError(Code.INVALID_TOPIC, "a topic needs a name")
    if name in (".", ".."):
        raise RefusedError(Code.INVALID_TOPIC, f"a topic cannot be named {name!r}")
    if len(name) > MAX_NAME:
        raise RefusedError(
            Code.INVALID_TOPIC, f"a topic's name has at most {MAX_NAME} characters; this one has {len(name)}"
        )
    if _NAME.fullmatch(name) is None:
        raise RefusedError(
            Code.INVALID_TOPIC, f"topic name {name!r}: only letters, digits, '.', '_' and '-' are allowed"
        )


def metric_name(name: str) -> str:
    """What Kafka's metrics make of a name: two topics with the same one cannot be told apart there."""
    return name.replace(".", "_")


def slug_of(name: str) -> str:
    """The name for addresses: small letters, digits and hyphens. Not unique by itself."""
    return _NOT_IN_SLUG.sub("-", name.lower()).strip("-") or "topic"


def new_identity(name: str, org_id: int, environment: str, cluster: str, taken: set[str]) -> Identity:
    """An identity whose slug is not one of `taken`."""
    ulid = str(ULID())
    slug = slug_of(name)
    if slug in taken:
        slug = f"{slug}-{ulid[-_SLUG_SUFFIX:].lower()}"
    return Identity(_new_uuid(), f"top_{ulid}", slug, f"{org_id}/{environment}/{cluster}/topics/{slug}")


def new_cluster_id() -> str:
    """22 characters, as Kafka's tools expect."""
    return secrets.token_urlsafe(16)


def _new_uuid() -> UUID:
    """Kafka's tools take an id that starts with a hyphen for an option; in base64 that is a first byte above 0xF7."""
    while True:
        found = uuid4()
        if found.bytes[0] < 0xF8:
            return found
