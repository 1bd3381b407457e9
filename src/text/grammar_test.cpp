#include "text/grammar.h"
