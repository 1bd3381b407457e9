#include "text/detokenizer.h"
