"""The tiny base model: transcripts of play -> a tokenizer and a Llama of 2.6 million weights.

    play       games -> transcripts, with every name marked; fresh names and compass at every epoch
    tokenize   text -> a byte-level BPE with a chat template
    pretrain   token ids -> a base model, and its card

Made again by `python -m cookbook.tiny make`. Taught in: notebooks/90_tiny_base_model.ipynb
"""
