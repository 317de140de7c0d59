"""Topics that transactions tie together: what brokers tell of producers → coupled sets of topics. Pure.

Sources: KIP-98 for transactions and what their coordinator logs; KIP-447 for offsets that producers commit in
transactions; KIP-664 for how brokers show producers and transactions.
"""
