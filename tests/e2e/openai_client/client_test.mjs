// SPDX-License-Identifier: Apache-2.0
// Goal: the unmodified npm `openai` client works against infosd: models, chat, completions, streaming, stop, logprobs, n,
// seed, usage, errors and abort. Method: each case asserts on what the client library hands back.
// usage: node client_test.mjs BASE_URL MODEL       prints one line a case; exit 1 when any failed.
import assert from 'node:assert/strict';
import OpenAI, { APIError, NotFoundError, BadRequestError } from 'openai';

const [baseUrl, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${baseUrl}/v1`, apiKey: 'unused', maxRetries: 0, timeout: 60_000 });
const question = [{ role: 'user', content: 'What is infos?' }];
const greedy = { model, temperature: 0, max_tokens: 48 };

async function metric(name) {
  const text = await (await fetch(`${baseUrl}/metrics`)).text();
  const lines = text.split('\n').filter((line) => line.startsWith(name + '{') || line.startsWith(name + ' '));
  assert.ok(lines.length > 0, `no metric ${name}`);
  return lines.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
}

async function until(what, condition) {
  const end = Date.now() + 20_000;
  while (!(await condition())) {
    assert.ok(Date.now() < end, `never happened: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const cases = {
  async models_list_and_retrieve() {
    const ids = [];
    for await (const entry of client.models.list()) ids.push(entry.id);
    assert.ok(ids.includes(model));
    assert.equal((await client.models.retrieve(model)).object, 'model');
  },

  async chat() {
    const answer = await client.chat.completions.create({ ...greedy, messages: question });
    assert.equal(answer.object, 'chat.completion');
    assert.equal(answer.model, model);
    assert.equal(answer.choices.length, 1);
    assert.equal(answer.choices[0].message.role, 'assistant');
    assert.ok(answer.choices[0].message.content.length > 0);
    assert.ok(['stop', 'length'].includes(answer.choices[0].finish_reason));
    assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
  },

  async chat_stream_equals_chat() {
    const whole = await client.chat.completions.create({ ...greedy, messages: question });
    const stream = await client.chat.completions.create({
      ...greedy, messages: question, stream: true, stream_options: { include_usage: true } });
    let text = '', reason = null, usage = null, chunks = 0;
    for await (const chunk of stream) {
      assert.equal(chunk.object, 'chat.completion.chunk');
      ++chunks;
      text += chunk.choices[0]?.delta?.content ?? '';
      reason = chunk.choices[0]?.finish_reason ?? reason;
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(reason, whole.choices[0].finish_reason);
    assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
    assert.ok(chunks > 3);
  },

  async completion_and_stream() {
    const body = { ...greedy, prompt: 'Once upon a time' };
    const whole = await client.completions.create(body);
    assert.equal(whole.object, 'text_completion');
    let text = '';
    for await (const chunk of await client.completions.create({ ...body, stream: true })) text += chunk.choices[0]?.text ?? '';
    assert.equal(text, whole.choices[0].text);
    assert.ok(text.length > 0);
  },

  async stop_string_is_cut_and_reported() {
    const body = { ...greedy, messages: question };
    const full = (await client.chat.completions.create(body)).choices[0].message.content;
    const stop = full.slice(Math.floor(full.length / 2), Math.floor(full.length / 2) + 4);
    const want = full.slice(0, full.indexOf(stop));
    const cut = await client.chat.completions.create({ ...body, stop: [stop] });
    assert.equal(cut.choices[0].message.content, want);
    assert.equal(cut.choices[0].finish_reason, 'stop');
    let text = '';
    for await (const chunk of await client.chat.completions.create({ ...body, stop, stream: true }))
      text += chunk.choices[0]?.delta?.content ?? '';
    assert.equal(text, want);
  },

  async logprobs() {
    const answer = await client.chat.completions.create({
      ...greedy, messages: question, max_tokens: 8, logprobs: true, top_logprobs: 3 });
    const content = answer.choices[0].logprobs.content;
    assert.equal(content.length, answer.usage.completion_tokens);
    for (const entry of content) {
      assert.equal(entry.top_logprobs.length, 3);
      assert.ok(entry.logprob <= 0);
      assert.ok(Math.abs(entry.logprob - entry.top_logprobs[0].logprob) < 1e-4, 'greedy takes the likeliest');
      assert.ok(Array.isArray(entry.bytes));
    }
    const legacy = await client.completions.create({ ...greedy, prompt: 'Once', max_tokens: 4, logprobs: 2 });
    assert.equal(legacy.choices[0].logprobs.tokens.length, 4);
    assert.ok(Object.keys(legacy.choices[0].logprobs.top_logprobs[0]).length >= 2);
  },

  async n_and_seed() {
    const body = { model, messages: question, max_tokens: 16, temperature: 1.5, n: 3, seed: 7 };
    const a = await client.chat.completions.create(body);
    const b = await client.chat.completions.create(body);
    assert.deepEqual(a.choices.map((c) => c.index).sort(), [0, 1, 2]);
    assert.deepEqual(a.choices.map((c) => c.message.content), b.choices.map((c) => c.message.content));
    assert.ok(new Set(a.choices.map((c) => c.message.content)).size > 1, 'three samples differ');
  },

  async max_completion_tokens() {
    const answer = await client.chat.completions.create({
      model, messages: question, temperature: 0, max_completion_tokens: 3 });
    assert.equal(answer.usage.completion_tokens, 3);
    assert.equal(answer.choices[0].finish_reason, 'length');
  },

  async errors_have_their_classes() {
    await assert.rejects(client.chat.completions.create({ ...greedy, model: 'nobody', messages: question }), NotFoundError);
    await assert.rejects(client.chat.completions.create({ ...greedy, messages: question, temperature: -1 }), BadRequestError);
    await assert.rejects(client.chat.completions.create({ ...greedy, messages: 'no' }), (error) => {
      assert.ok(error instanceof APIError);
      assert.ok(error.message.includes('messages'));
      return true;
    });
  },

  async abort_frees_the_kv_blocks() {
    await until('idle', async () => (await metric('infos_kv_blocks_used')) === 0);
    const stream = await client.completions.create({
      model, prompt: 'Once upon a time', max_tokens: 400, temperature: 1, stream: true,
      logit_bias: {}, ignore_eos: true });
    let chunks = 0;
    for await (const _ of stream) if (++chunks === 3) break;  // leaving the loop aborts the request
    await until('blocks freed', async () => (await metric('infos_kv_blocks_used')) === 0);
  },
};

let failed = 0;
for (const [name, run] of Object.entries(cases)) {
  try {
    await run();
    console.log(`ok   ${name}`);
  } catch (error) {
    ++failed;
    console.log(`FAIL ${name}: ${error.stack ?? error}`);
  }
}
console.log(`${Object.keys(cases).length - failed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
