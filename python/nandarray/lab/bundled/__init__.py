"""The lab's own experiments, a module each: the first questions to ask of any described device."""
