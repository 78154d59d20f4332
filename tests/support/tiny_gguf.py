"""A tiny random LLaMA as a GGUF file, as `llama.cpp` would write it, with the same weights as a Transformers model."""

from pathlib import Path

import torch
from gguf import GGUFWriter, LlamaFileType, TokenType
from gguf.constants import MODEL_ARCH
from gguf.tensor_mapping import get_tensor_name_map
from transformers import LlamaConfig, LlamaModel

WIDTH = 32
HEADS = 4
KEY_HEADS = 2
LAYERS = 2
POSITIONS = 64
WORDS = ("heart", "lung", "kidney", "pain", "fever", "cough")


def write_tiny_gguf(path: Path) -> LlamaModel:
    """Write the file, and return the model whose weights it holds."""
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        "▁",
        *(f"▁{word}" for word in WORDS),
        *"abcdefghijklmnopqrstuvwxyz",
    ]
    model = _model(len(tokens))
    writer = GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_file_type(LlamaFileType.ALL_F32)
    writer.add_vocab_size(len(tokens))
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(2 * WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(rank) for rank in range(len(tokens))])
    special = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
    writer.add_token_types(special + [TokenType.NORMAL] * (len(tokens) - len(special)))
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, LAYERS)
    for name, tensor in model.state_dict().items():
        heads = {"q_proj": HEADS, "k_proj": KEY_HEADS}.get(name.split(".")[-2])
        gguf_name = names.get_name(f"model.{name}", try_suffixes=(".weight",))
        writer.add_tensor(
            gguf_name,
            (tensor if heads is None else _interleaved(tensor, heads)).numpy(),
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def _model(vocab_size: int) -> LlamaModel:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        max_position_embeddings=POSITIONS,
    )
    return LlamaModel(config).eval()


def _interleaved(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Order the rows of queries and keys as `llama.cpp` does, which rotates neighbours instead of halves."""
    return rows.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2).contiguous()
