// Command kubectlolder is the kubectl of the Kubernetes minor version before ours: `ops-while-cut` runs the commands of an
// operator whose kubectl is older than the coordinator. It is a module of its own since one module has one version of each.
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
