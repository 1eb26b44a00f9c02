// Nothing of it is built: its custom resources' schemas are what test/chart compares the chart's monitors and rules with.
module github.com/fairlead/fairlead/test/tools/prometheus-operator

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
