"""Models: loading them by name, and the policy worker that samples from, scores and updates one."""
