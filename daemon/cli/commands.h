// SPDX-License-Identifier: Apache-2.0
// What each command's file gives to the table in commands.cc.
#pragma once

#include "daemon/cli/command.h"

namespace infos::cli {

void describe_apply(boost::program_options::options_description_easy_init add);
int run_apply(const Invocation& given);
void describe_bench(boost::program_options::options_description_easy_init add);
int run_bench(const Invocation& given);
void describe_bench_kv(boost::program_options::options_description_easy_init add);
int run_bench_kv(const Invocation& given);
void describe_chat(boost::program_options::options_description_easy_init add);
int run_chat(const Invocation& given);
int run_completion(const Invocation& given);
void describe_doctor(boost::program_options::options_description_easy_init add);
int run_doctor(const Invocation& given);
void describe_drain(boost::program_options::options_description_easy_init add);
int run_drain(const Invocation& given);
void describe_get(boost::program_options::options_description_easy_init add);
int run_get(const Invocation& given);
int run_describe(const Invocation& given);
void describe_init(boost::program_options::options_description_easy_init add);
int run_init(const Invocation& given);
void describe_join(boost::program_options::options_description_easy_init add);
int run_join(const Invocation& given);
void describe_model_inspect(boost::program_options::options_description_easy_init add);
int run_model_inspect(const Invocation& given);
void describe_model_synth(boost::program_options::options_description_easy_init add);
int run_model_synth(const Invocation& given);
void describe_plugin_check(boost::program_options::options_description_easy_init add);
int run_plugin_check(const Invocation& given);
void describe_simulate(boost::program_options::options_description_easy_init add);
int run_simulate(const Invocation& given);
void describe_trace(boost::program_options::options_description_easy_init add);
int run_trace(const Invocation& given);
void describe_token(boost::program_options::options_description_easy_init add);
void describe_token_create(boost::program_options::options_description_easy_init add);
int run_token_create(const Invocation& given);
int run_token_list(const Invocation& given);
int run_token_revoke(const Invocation& given);
void describe_up(boost::program_options::options_description_easy_init add);
int run_up(const Invocation& given);
void describe_version(boost::program_options::options_description_easy_init add);
int run_version(const Invocation& given);
int run_spec_reference(const Invocation& given);

}  // namespace infos::cli
