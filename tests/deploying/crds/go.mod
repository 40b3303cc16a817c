module coxswain.dev/deploying/crds

go 1.26.0

// Nothing of it is built: the custom resource definitions of the Prometheus Operator are read from it.
require github.com/prometheus-operator/prometheus-operator v0.94.1
