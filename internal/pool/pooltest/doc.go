// Package pooltest is what the tests of the coordinator's packages share: certificates, a cloud's objects, an etcd that fails
// when it is told to, a pushing leader and a node's hub. It imports none of these packages, so that their own tests can use it.
package pooltest
