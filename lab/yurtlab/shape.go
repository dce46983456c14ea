package yurtlab

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/line"
)

// usualQueue is the default queue of a link with a rate: that of a cheap router.
const usualQueue = "256k"

// shapeFlags are a person's settings for a link.
type shapeFlags struct {
	rate, loss, queue string
	delay, jitter     time.Duration
	seed              uint64
	shared, off       bool
}

func shapeCommand(name *string) *cobra.Command {
	var f shapeFlags
	cmd := &cobra.Command{
		Use:   "shape wan|lan NODE|pool/POOL",
		Short: "Give a link a rate, a delay, jitter, loss and a queue, or remove them",
		Long: `Give the link of a node, or of all nodes of a pool, a rate, a delay, jitter, loss and a queue. Each
value applies to each direction. The new shape replaces an earlier one, and lasts until --off, even
through cuts and power cuts. The seed decides which frames are lost, and their delays: the same seed treats
the same sequence of frames alike.`,
		Args: cobra.ExactArgs(2),
		Example: `  yurtlab link shape wan p1-n2 --rate 1mbit --delay 300ms --jitter 40ms --loss 2% --queue 256k
  yurtlab link shape wan pool/p1 --rate 2mbit --delay 50ms --shared
  yurtlab link shape wan pool/p1 --off`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.off {
				return onLink(*name, args, func(c *lab.Client, n lab.Network, target string) error {
					return c.Unshape(cmd.Context(), n, target)
				})
			}
			shape, err := f.shape(cmd.Flags().Changed("seed"))
			if err != nil {
				return err
			}
			return onLink(*name, args, func(c *lab.Client, n lab.Network, target string) error {
				if err := c.Shape(cmd.Context(), n, target, shape); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s; seed %d\n", shape.Shape, shape.Seed)
				return nil
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.rate, "rate", "", "rate of whole Ethernet frames, such as 1mbit or 500kbit; default: no limit")
	flags.DurationVar(&f.delay, "delay", 0, "how long a frame travels")
	flags.DurationVar(&f.jitter, "jitter", 0, "how much longer or shorter a delay may be; frames keep their order")
	flags.StringVar(&f.loss, "loss", "", "share of frames that are lost, such as 2%")
	flags.StringVar(&f.queue, "queue", "",
		"bytes that may wait for a link with a rate, by default "+usualQueue+"; a frame beyond is dropped")
	flags.Uint64Var(&f.seed, "seed", 0, "seed of loss and jitter; default: a random one, which is printed")
	flags.BoolVar(&f.shared, "shared", false, "one link for the whole pool, like a site's uplink")
	flags.BoolVar(&f.off, "off", false, "remove the shape")
	for _, other := range []string{"rate", "delay", "jitter", "loss", "queue", "seed", "shared"} {
		cmd.MarkFlagsMutuallyExclusive("off", other)
	}
	return cmd
}

// shape returns the shape that the flags describe.
func (f shapeFlags) shape(seeded bool) (lab.LinkShape, error) {
	s := lab.LinkShape{Shape: line.Shape{Delay: f.delay, Jitter: f.jitter}, Seed: f.seed, Shared: f.shared}
	if !seeded {
		s.Seed = uint64(rand.Uint32()) // short enough to type
	}
	var err error
	if f.rate != "" {
		if s.Rate, err = line.ParseRate(f.rate); err != nil {
			return s, fmt.Errorf("--rate: %w", err)
		}
		if f.queue == "" {
			f.queue = usualQueue
		}
	}
	if f.queue != "" {
		if s.Queue, err = line.ParseSize(f.queue); err != nil {
			return s, fmt.Errorf("--queue: %w", err)
		}
	}
	if f.loss != "" {
		if s.Loss, err = line.ParseLoss(f.loss); err != nil {
			return s, fmt.Errorf("--loss: %w", err)
		}
	}
	return s, s.Validate()
}
