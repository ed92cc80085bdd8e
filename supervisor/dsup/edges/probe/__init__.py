"""The probe: an aide of its own that alone asks NVML, which may hang for ever."""
