package edit

// Numbers of fields: they are part of Kubernetes' wire format, and never change. A test compares them with the API types.
const (
	// Metadata is that of every object and every list, Status that of most objects, Items that of every list.
	Metadata Number = 1
	Items    Number = 2
	Status   Number = 3

	// Of an ObjectMeta.
	Name            Number = 1
	Namespace       Number = 3
	ResourceVersion Number = 6
	Labels          Number = 11
	Annotations     Number = 12

	// Of an entry of a map.
	MapKey   Number = 1
	MapValue Number = 2

	// Of a runtime.Unknown, which is around every message that stands alone, and of its TypeMeta.
	UnknownTypeMeta        Number = 1
	UnknownRaw             Number = 2
	UnknownContentEncoding Number = 3
	UnknownContentType     Number = 4
	TypeMetaAPIVersion     Number = 1
	TypeMetaKind           Number = 2

	// Of an event of a watch, and of the RawExtension that is its object.
	WatchEventType   Number = 1
	WatchEventObject Number = 2
	RawExtensionRaw  Number = 1

	// Of a ConfigMap: a map.
	ConfigMapData Number = 2

	// Of an EndpointSlice, and of its Endpoints.
	SliceEndpoints     Number = 2
	EndpointAddresses  Number = 1
	EndpointConditions Number = 2
	EndpointTargetRef  Number = 4
	EndpointNodeName   Number = 6

	// Of an endpoint's conditions.
	ConditionReady       Number = 1
	ConditionServing     Number = 2
	ConditionTerminating Number = 3

	// Of Endpoints, of a subset of theirs, and of an address.
	EndpointsSubsets Number = 2
	SubsetReady      Number = 1
	SubsetNotReady   Number = 2
	AddressIP        Number = 1
	AddressTargetRef Number = 2
	AddressNodeName  Number = 4

	// Of an ObjectReference.
	ReferenceKind      Number = 1
	ReferenceNamespace Number = 2
	ReferenceName      Number = 3
	ReferenceUID       Number = 4
)
