"""Every error of the Kafka wire layer. All of them are the client's fault; what a gateway does is say why and close."""


class KafkaWireError(Exception):
    """Base of all errors of this package."""


class FrameLengthError(KafkaWireError):
    """A request that announces a length no request has, or more than is allowed; nothing was allocated for it."""


class MalformedRequestError(KafkaWireError):
    """Bytes that are not a request of the API and version that its header names."""


class UnknownApiError(KafkaWireError):
    """An API key that is not in the table."""


class UnsupportedVersionError(KafkaWireError):
    """A version outside the table's range; `correlation_id` lets ApiVersions be answered all the same."""

    def __init__(self, message: str, *, api_key: int = -1, correlation_id: int = 0) -> None:
        super().__init__(message)
        self.api_key = api_key
        self.correlation_id = correlation_id

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_version_error, (self.args[0], self.api_key, self.correlation_id)


def _rebuild_version_error(message: str, api_key: int, correlation_id: int) -> UnsupportedVersionError:
    return UnsupportedVersionError(message, api_key=api_key, correlation_id=correlation_id)
