// SPDX-License-Identifier: Apache-2.0
// A module needs a file of its own; what it exports comes from infos_cpu_backend.
