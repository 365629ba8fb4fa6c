// SPDX-License-Identifier: Apache-2.0
// A shared object that is no plugin.
extern "C" int infos_nothing() { return 0; }
