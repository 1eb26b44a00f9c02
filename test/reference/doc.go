// Package reference keeps the reference documents true: docs/configuration.md and the table of values in charts/fairlead/README.md
// are generated, docs/metrics.md is written by hand and compared.
//
// Input: the flags of both binaries, the comments of the chart's values.yaml, the metrics that the source names and those that
// running binaries serve, and the queries of alert rules and of the dashboard. Output: Markdown, and lists to compare. All
// functions are pure; the package's tests read the repository, and with -update write what is generated. Package chart
// renders the chart.
package reference
