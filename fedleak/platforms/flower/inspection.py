"""A mod that rejects models with traces of an attack; see `fedleak.platforms.inspection`."""

import logging
from collections.abc import Callable, Sequence

from flwr.app import Context, Error, Message, MessageType
from flwr.common.constant import ErrorCode
from torch import Tensor, nn

from fedleak.platforms.flower.recording import state_of
from fedleak.platforms.inspection import Finding, inspect_model, log_findings

log = logging.getLogger("fedleak.platforms.flower")


class InspectionMod:
    """A mod of a Flower client app that inspects the model before the client trains, and rejects one with findings.

    The server then gets an error with the code ``MOD_FAILED_PRECONDITION`` and no update; mods behind this one in
    ``mods=[...]`` are not called. Arrays that are not one readable model, and errors of the inspection, are findings,
    too. A message without arrays passes, as in most stages of SecAgg+: put the mod before ``secaggplus_mod``. The
    findings are in the client's log, not in the error. With `warn` the model is not rejected.

    Parameters
    ----------
    model
        Function that returns the client's module, such as its class; by default only the weights are inspected.
    samples
        Function of the context that returns samples of the client, ``[B, ...]``, for the module.
    names
        As for `fedleak.platforms.flower.recorded`.
    bounds
        Range of the model's inputs.
    """

    def __init__(
        self,
        model: Callable[[], nn.Module] | None = None,
        samples: Callable[[Context], Tensor] | None = None,
        *,
        names: Sequence[str] | None = None,
        bounds: tuple[float, float] = (0.0, 1.0),
        warn: bool = False,
    ):
        if samples is not None and model is None:
            raise ValueError("samples are passed through the client's model: say which it is")
        self.model, self.samples, self.names, self.bounds, self.warn = model, samples, names, bounds, warn

    def __call__(self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        """Pass on a message, unless it asks to train on a model with findings."""
        if message.metadata.message_type.partition(".")[0] == MessageType.TRAIN and message.content.array_records:
            findings = log_findings(lambda: self._inspect(message, context), log, message.metadata.dst_node_id)
            if findings and not self.warn:
                reason = "the client does not train on this model"
                return Message(Error(code=ErrorCode.MOD_FAILED_PRECONDITION, reason=reason), reply_to=message)
        return call_next(message, context)

    def _inspect(self, message: Message, context: Context) -> list[Finding]:
        model, x = self.model and self.model(), self.samples and self.samples(context)
        return inspect_model(state_of(message.content, self.names), model, x, bounds=self.bounds)
