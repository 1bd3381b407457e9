#pragma once
// In place of MLX's file, which specialises a template for each address space: here they are one.
#include <metal_stdlib>

namespace metal {

template <class T>
struct is_empty : bool_constant<__is_empty(T)> {};
template <class T>
struct pointer_element {};
template <class T>
struct pointer_element<T*> {
  using type = remove_cv_t<T>;
};
template <class T>
using pointer_element_t = typename pointer_element<remove_cv_t<T>>::type;

}  // namespace metal
