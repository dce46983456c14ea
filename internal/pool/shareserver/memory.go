package shareserver

import (
	"reflect"
	"strconv"
	"strings"
	"sync"

	"yurtcoordinator/internal/stream/edit"
)

const (
	// maxGrowth and growthSlack bound the memory of an object: maxGrowth bytes for each of its bytes, and growthSlack more.
	// Kubernetes' own objects take up to 12 for each (TestHonestObjectsFit). An empty container has 2 bytes in protobuf and 408
	// in memory, so an object of 1.4 MB could take 300 MB.
	maxGrowth, growthSlack = 16, 16 << 10
	// entryBytes is what an entry of a map takes besides its content, or more.
	entryBytes = 128
)

// sizeInMemory returns about how many bytes a message in protobuf will take, once it is decoded, besides the struct itself. The
// struct is of type t.
func sizeInMemory(t reflect.Type, message []byte) (size int, err error) {
	fields := protobufFields(t)
	for f, err := range edit.Fields(message) {
		if err != nil {
			return 0, err
		}
		size += len(f.Value)
		of, known := fields[f.Number]
		if !known {
			continue
		}
		switch of.Kind() {
		case reflect.Map:
			size += entryBytes
			continue
		case reflect.Slice, reflect.Pointer: // one element; of bytes, their content has been counted
			of = of.Elem()
			size += int(of.Size())
		}
		if of.Kind() == reflect.Struct {
			inside, err := sizeInMemory(of, f.Value)
			if err != nil {
				return 0, err
			}
			size += inside
		}
	}
	return size, nil
}

var protobufFieldsOf sync.Map // of map[edit.Number]reflect.Type, by the struct's type

// protobufFields returns the types of a struct's fields by their protobuf numbers. A struct that encodes itself has none.
func protobufFields(t reflect.Type) map[edit.Number]reflect.Type {
	if known, ok := protobufFieldsOf.Load(t); ok {
		return known.(map[edit.Number]reflect.Type) //nolint:forcetypeassert // nothing else is stored there
	}
	all := map[edit.Number]reflect.Type{}
	for i := range t.NumField() {
		parts := strings.Split(t.Field(i).Tag.Get("protobuf"), ",")
		if len(parts) < 2 {
			continue
		}
		if n, err := strconv.Atoi(parts[1]); err == nil {
			all[edit.Number(n)] = t.Field(i).Type
		}
	}
	protobufFieldsOf.Store(t, all)
	return all
}
