"""From changes to elements: changelog encoders, and what an emission policy holds back."""
