module coxswain.dev/oracle

go 1.26.0
