"""Read-only analysis of a run's trace: rollout trees, advantages and where they come from, critics, health.

Everything returns DataFrames or frozen dataclasses and reads a bounded part of the trace. It knows neither
screens nor trainers, never imports torch and never writes.
"""
