"""An NVML that is played: GPUs of which each question can be made to fail, as drivers and broken GPUs make them."""

from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """Exception of pynvml, with NVML's code."""

    def __init__(self, value: int, text: str = "Unknown Error") -> None:
        super().__init__(text)
        self.value = value


NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, LOST, RESET, UNKNOWN = 3, 4, 13, 15, 16, 999


class FabricInfo:
    def __init__(self) -> None:
        self.clusterUuid = b"\0" * 16
        self.status = 0
        self.cliqueId = 0
        self.state = 3
        self.healthMask = 0
        self.healthSummary = 0


class PlayedNvml:
    """Eight GPUs like H200s, changed by what a test sets.

    Attributes:
        fails: The code with which a question fails: for ``(GPU, function)``, or for a function on all GPUs.
        overrides: Answers by the same keys that replace others.
        lacks: Functions that this pynvml or driver does not have.
        asked: How often each function was called.
    """

    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230
    c_nvmlGpuFabricInfo_v3_t = FabricInfo  # noqa: N815

    _USUAL = {  # noqa: RUF012
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetSerial": "165",
        "nvmlDeviceGetVbiosVersion": "96.00.A5.00.1A",
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=0, memory=0),
        "nvmlDeviceGetCurrentClocksEventReasons": 0x1,
        "nvmlDeviceGetPerformanceState": 0,
        "nvmlDeviceGetCurrPcieLinkGeneration": 5,
        "nvmlDeviceGetMaxPcieLinkGeneration": 5,
        "nvmlDeviceGetGpuMaxPcieLinkGeneration": 5,
        "nvmlDeviceGetCurrPcieLinkWidth": 16,
        "nvmlDeviceGetMaxPcieLinkWidth": 16,
        "nvmlDeviceGetPcieReplayCounter": 0,
        "nvmlDeviceGetClockInfo": 345,
        "nvmlDeviceGetMaxClockInfo": 1980,
        "nvmlDeviceGetPowerUsage": 78060,
        "nvmlDeviceGetTemperature": 34,
        "nvmlDeviceGetEccMode": [1, 1],
        "nvmlDeviceGetMigMode": [0, 0],
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=143771 << 20, used=0, free=0),
        "nvmlDeviceGetComputeMode": 0,
        "nvmlDeviceGetPersistenceMode": 1,
        "nvmlDeviceGetTotalEccErrors": 0,
        "nvmlDeviceGetRemappedRows": (0, 0, 0, 0),
        "nvmlDeviceGetEnforcedPowerLimit": 700000,
        "nvmlDeviceGetPowerManagementDefaultLimit": 700000,
        "nvmlDeviceGetTemperatureThreshold": 87,
        "nvmlDeviceGetGpuFabricInfoV": 0,
    }

    def __init__(self, gpus: int = 2) -> None:
        self.gpus = gpus
        self.fails: dict[str | tuple[int, str], int] = {"nvmlDeviceGetRetiredPagesPendingStatus": NOT_SUPPORTED}
        self.overrides: dict[str | tuple[int, str], Any] = {}
        self.lacks: set[str] = set()
        self.asked: dict[str, int] = {}

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "580.159.04"

    def nvmlSystemGetCudaDriverVersion(self) -> int:  # noqa: N802
        return 13000

    def nvmlErrorString(self, code: int) -> str:  # noqa: N802
        return f"error number {code}"

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.asked["nvmlShutdown"] = self.asked.get("nvmlShutdown", 0) + 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.gpus

    def __getattr__(self, name: str) -> Any:
        if name in self.lacks or not name.startswith("nvml"):
            raise AttributeError(name)

        def question(handle: int, *args: Any) -> Any:
            return self._answer(name, handle, args)

        return question

    def _answer(self, name: str, at: int, args: tuple[Any, ...]) -> Any:
        self.asked[name] = self.asked.get(name, 0) + 1
        code = self.fails.get((at, name), self.fails.get(name))
        if code is not None:
            raise NVMLError(code, {NOT_SUPPORTED: "Not Supported"}.get(code, "Unknown Error"))
        if (at, name) in self.overrides or name in self.overrides:
            answer = self.overrides.get((at, name), self.overrides.get(name))
            return answer(*args) if callable(answer) else answer
        if name == "nvmlDeviceGetHandleByIndex":
            return at
        if name == "nvmlDeviceGetUUID":
            return f"GPU-{at}"
        if name == "nvmlDeviceGetPciInfo":
            return SimpleNamespace(busId=f"00000000:0{at}:00.0".encode())
        if name == "nvmlDeviceGetFieldValues":
            return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=0))]
        if name in self._USUAL:
            return self._USUAL[name]
        raise NVMLError(FUNCTION_NOT_FOUND)
