"""The look of a report."""

STYLE = """
:root { color-scheme: light; }
body { margin: 0; background: #fff; color: #222; font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1160px; margin: 0 auto; padding: 24px 16px 64px; }
h1 { font-size: 26px; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 20px; margin: 36px 0 10px; padding-top: 12px; border-top: 1px solid #ddd; overflow-wrap: anywhere; }
h3 { font-size: 16px; margin: 24px 0 4px; }
h4 { font-size: 14px; margin: 12px 0 4px; color: #555; }
p { margin: 6px 0; }
.quiet { color: #777; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(480px, 100%), 1fr)); gap: 12px; }
.chart { min-width: 0; min-height: 280px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13.5px; margin: 6px 0; }
th, td { text-align: left; vertical-align: top; padding: 3px 10px 3px 0; border-bottom: 1px solid #eee; }
td { overflow-wrap: anywhere; }
.facts th { font-weight: 500; color: #666; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.text { white-space: pre-wrap; min-width: 240px; max-width: 640px; font-family: ui-monospace, monospace; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f6f6f4; padding: 8px 10px; font-size: 13px;
  border-radius: 4px; margin: 6px 0; }
summary { cursor: pointer; color: #345; margin: 4px 0; }
.node { margin: 8px 0 16px; padding-left: 12px; border-left: 3px solid #ddd; }
.notice, .finding { padding: 8px 12px; margin: 8px 0; border-radius: 4px; background: #fff6df; }
.finding.alarm { background: #fde8e6; }
.finding.info { background: #eef3fa; }
.notice { border-left: 4px solid #d9a300; }
"""
