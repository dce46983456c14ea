module generate

go 1.25

require go.etcd.io/bbolt v1.4.3
