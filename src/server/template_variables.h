#pragma once
#include "base/result.h"
#include "server/errors.h"
#include "server/openai/request.h"
#include "text/chat_template.h"

namespace quire::server {

// The variables for a chat's template: chat_template_kwargs, and what the request says about
// thinking under the names that this template reads. An error if it reads none of them, or no tools
// or documents where the request has some: the model would not see what the client asked for.
Result<json::object, ApiError> template_variables(const openai::ChatInput& chat,
                                                  const text::ChatTemplate& chat_template);

}  // namespace quire::server
