"""The launch page's form: a draft of a run spec, its widgets, and what is known about it before it starts."""
