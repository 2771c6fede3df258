module tablestone/loadgen

go 1.22
