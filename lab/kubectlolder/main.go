// Command kubectlolder is the kubectl of the Kubernetes minor version before ours. `ops-while-cut` uses it for the commands of
// an operator whose kubectl is older than the coordinator. It has its own module, because a module has one version of each
// dependency.
package main

import (
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		cmdutil.CheckErr(err)
	}
}
