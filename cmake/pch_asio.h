// SPDX-License-Identifier: Apache-2.0
// Precompiled by targets that use Asio or Beast: these headers cost 4-8 s a file otherwise.
#pragma once
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/json.hpp>
