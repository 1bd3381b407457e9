// The one translation unit that compiles the non-template parts of Asio and Beast; the room is
// built with BOOST_ASIO_SEPARATE_COMPILATION and BOOST_BEAST_SEPARATE_COMPILATION.
#include <boost/asio/impl/src.hpp>
#include <boost/beast/src.hpp>
