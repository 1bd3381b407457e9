#pragma once
#include "formats/gguf/translator.h"

namespace quire::formats {

// Says a GGUF model in Hugging Face's words, by its general.architecture. Throws LoadError for an
// architecture that is not in the table.
void translate_architecture(GgufTranslator& translator);

}  // namespace quire::formats
