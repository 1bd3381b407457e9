#pragma once
// What metal-cpp takes from Objective-C's run time; Apple's headers are not for other systems.
extern "C" {
typedef struct objc_class* Class;
typedef struct objc_selector* SEL;
typedef struct objc_object {
  Class isa;
}* id;
typedef struct objc_object Protocol;
typedef signed char BOOL;
SEL sel_registerName(const char* name);
Class objc_lookUpClass(const char* name);
Protocol* objc_getProtocol(const char* name);
}
