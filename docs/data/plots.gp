# Draws the pictures of docs/benchmarks.md from the results beside it: `make plots`. One row of a file is one run.
set terminal svg size 760,440 dynamic background "white" font "sans-serif,13"
set datafile separator comma
set grid
set key above left Left reverse vertical
machine = "2 shared cores (AMD EPYC), Debian 12"

set output "docs/img/wan-bytes.svg"
set title "1000 Services of 50 endpoints: what filling a pool costs over the WAN"
set xlabel "nodes of the pool, each with a client that reads all\n{/*0.9 yurtlab run one-copy-N; ".machine."}"
set ylabel "MB over all links"
set logscale xy
set xrange [9:33]
set yrange [0.1:1000]
set xtics (10, 30)
plot "docs/data/one-copy.csv" using 1:($2/1e6) skip 1 with linespoints dashtype 2 pointtype 7 \
        title "without sharing: a copy for each node", \
     "" using 1:($3/1e6) skip 1 with linespoints pointtype 7 title "here: one copy for the pool"

unset logscale
set xtics auto
set yrange [0:1]
set output "docs/img/cut-to-taint.svg"
set title "From a silent cut to the first delegated heartbeat and the taint"
set xlabel "seconds since the cut\n{/*0.9 yurtlab run SCENARIO; ".machine."}"
set ylabel "share of runs"
set xrange [0:11]
times(timing) = sprintf("< grep ^%s, docs/data/cuts.csv", timing)
plot times("lab") using ($3+$4):(1) smooth cnormal with steps linewidth 2 title "heartbeats every 2 s, as in the lab", \
     times("stock") using ($3+$4):(1) smooth cnormal with steps linewidth 2 title "every 10 s, as Kubernetes has it", \
     times("slow") using ($3+$4):(1) smooth cnormal with steps linewidth 2 title "every 10 s, 300 ms or 5 % loss on the link"

set output "docs/img/coordinator-memory.svg"
set title "A coordinator with 1000 Pods and 500 Nodes, patched without end"
set xlabel "seconds of patching\n{/*0.9 go test ./internal/pool -bench Memory; ".machine."}"
set ylabel "MB"
set xrange [0:60]
set yrange [0:280]
plot 256 dashtype 2 title "the budget", \
     "docs/data/coordinator-memory.csv" using 1:2 skip 1 with linespoints pointtype 7 title "resident", \
     "" using 1:3 skip 1 with linespoints pointtype 7 title "of it anonymous"
