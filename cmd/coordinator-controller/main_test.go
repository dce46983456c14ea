package main

import (
	"testing"

	"yurtcoordinator/internal/logs/logstest"
)

func TestMain(m *testing.M) { logstest.Main(m, main) }
